"""Access control and limits: guard, sign-in, passwords, sizes of requests, slow connections."""
