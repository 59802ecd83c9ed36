"""Services for people and scripts, without pages: no Gradio, no FastAPI, no markup, no SQL."""
