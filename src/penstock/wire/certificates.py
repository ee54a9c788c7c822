"""Files of certificates and keys, as both ends of a connection read them."""

from __future__ import annotations

import ssl


def fault(error: OSError) -> str:
    """What is wrong with such a file; of its content OpenSSL says no more than a word.

    >>> fault(FileNotFoundError(2, "No such file or directory"))
    'No such file or directory'
    """
    if type(error) is ssl.SSLError:
        return f"not in PEM form, or not a pair ({error.reason})"
    return error.strerror or str(error)
