"""A queue on the network: Tarantool's protocol and gRPC in front of one store."""
