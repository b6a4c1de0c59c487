"""Security: authentication, ACLs, quotas and TLS."""
