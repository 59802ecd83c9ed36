"""What a person or a script can ask of the studio, without a page: no Gradio, no FastAPI, no markup, no SQL."""
