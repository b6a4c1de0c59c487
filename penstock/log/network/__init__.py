"""The network side of the broker: accepting connections, framing requests, sending replies, limits."""
