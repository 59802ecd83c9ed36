"""The example workspace: one press of a button fills the studio with drawn scenes and everything made from them."""
