"""Who gets in, and limits on what is sent: guard, sign-in, passwords, sizes of requests, slow connections."""
