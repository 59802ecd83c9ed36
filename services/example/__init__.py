"""The example workspace: one press fills the studio with drawn scenes and everything made from them."""
