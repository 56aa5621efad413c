"""HTTP on loopback, where nobody speaks TLS."""

import ssl

# For `verify`: without it, each client of httpx reads the certificates of the whole world first, which takes it 30 ms.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
