"""Access and limits of requests: guard, sign-in, passwords, sizes of requests, slow connections."""
