"""The pytest plugin: fixtures for tests of programs that use Penstock."""
