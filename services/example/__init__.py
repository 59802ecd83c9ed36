"""The example workspace: one press fills the studio with drawn scenes and all that can be made of them."""
