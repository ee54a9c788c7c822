"""Made from wire/penstock.proto by tools/generate.py. Do not edit.

The base class of the service raises NotImplementedError by itself; server/grpc_door.py has a method for each verb.
"""
