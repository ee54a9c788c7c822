"""How ops, answers and errors look between processes."""
