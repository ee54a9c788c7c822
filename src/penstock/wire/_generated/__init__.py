"""Made from wire/penstock.proto by tools/generate.py. Do not edit."""
