"""A queue on the network: Tarantool's protocol and gRPC in front of one store."""

import os

# gRPC writes lines of its own about every handshake that fails. It looks here when it is loaded, and no later.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
