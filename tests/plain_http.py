"""HTTP on loopback, without TLS."""

import ssl

# For `verify`: otherwise each client of httpx first loads all root certificates, which takes 30 ms.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
