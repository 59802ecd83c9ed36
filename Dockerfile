# The studio in a container, for CPU and GPU:
#
#   docker build --tag dillema-studio .
#   export STUDIO_PASSWORD=...
#   docker run --rm --publish 127.0.0.1:7860:7860 --volume dillema:/workspace --env STUDIO_PASSWORD dillema-studio
#   docker run --rm --publish 127.0.0.1:7860:7860 --volume dillema:/workspace --volume models:/models \
#     --gpus all --env PROFILE=paper --env STUDIO_PASSWORD dillema-studio
#
# In a container the studio cannot tell who can reach it, so it wants a password (docs/serving.md has the rest).
#
# The same image runs on both: PyTorch as PyPI has it brings CUDA and uses a GPU where it is given one. For machines
# that will never have one, this leaves out some 4 GB of CUDA:
#
#   docker build --build-arg TORCH=cpu --tag dillema-studio:cpu .

FROM python:3.11-slim

ARG TORCH=gpu
ARG CPU_INDEX=https://download.pytorch.org/whl/cpu

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# The folders exist and belong to the user before they become volumes, so that the volumes belong to the user too.
RUN useradd --create-home --uid 1000 studio \
    && mkdir --parents /studio /workspace /models \
    && chown studio:studio /workspace /models

WORKDIR /studio

# Packages before code: an edit of the code does not install them again.
COPY requirements.txt ./
RUN if [ "$TORCH" = cpu ]; then \
      grep --extended-regexp --invert-match '^(nvidia-|cuda-|triton==)' requirements.txt \
        | sed --regexp-extended 's/^(torch|torchvision)==([^ ]+)/\1==\2+cpu/' > /tmp/requirements.txt \
      && pip install --quiet --extra-index-url "$CPU_INDEX" --requirement /tmp/requirements.txt \
      && rm /tmp/requirements.txt; \
    else \
      pip install --quiet --requirement requirements.txt; \
    fi

COPY . ./

USER studio
ENV WORKSPACE=/workspace PORT=7860 PROFILE=demo HF_HOME=/models
VOLUME ["/workspace", "/models"]
EXPOSE 7860

HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/healthz', timeout=4)"]

# Listening on all addresses is right only in here: who can reach the page is decided by --publish, who may, by password.
CMD ["python", "app.py", "--host", "0.0.0.0"]
