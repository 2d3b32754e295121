"""stub"""
def demo() -> None:
    """Demo."""
