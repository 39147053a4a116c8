# Two images: `training`, the default, runs the commands; `development` is the base of .devcontainer.
# Not run by us: see "Containers" in docs/installation.md, which has the commands.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS development
RUN apt-get update \
    && apt-get install --no-install-recommends --yes curl gcc git libc6-dev make \
    && rm -rf /var/lib/apt/lists/*

FROM python:${PYTHON}-slim AS training
# "tensorflow[and-cuda]" adds the CUDA libraries for NVIDIA GPUs.
ARG TENSORFLOW=tensorflow
# The templates of examples/clusters expect the checkout here.
WORKDIR /official_bert
# The packages change rarely, so they have a layer of their own.
COPY requirements.txt ./
RUN pip install --no-cache-dir --requirement requirements.txt "${TENSORFLOW}"
COPY pyproject.toml LICENSE requirements.txt *.py ./
COPY docs/package_index.md docs/
COPY official_bert official_bert
COPY examples examples
RUN pip install --no-cache-dir --no-deps .
ENTRYPOINT ["official-bert"]
CMD ["--help"]
