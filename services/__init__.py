"""All that a person or a script can ask of the studio, without pages: no Gradio, no FastAPI, no markup, no SQL."""
