"""Records: reading them within bounds, choosing them, showing them, writing them."""
