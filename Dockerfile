# docker build -t cora . && docker run --rm cora          runs `make demo`
#
# With CUDA (the driver comes from the host, R580 or newer):
#   docker build -t cora-cuda --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 \
#                --build-arg EXTRAS=test,cuda .
#   docker run --rm --gpus all cora-cuda
ARG BASE=python:3.11-slim
FROM ${BASE}

# Only a base without Python gets the distribution's.
RUN apt-get update \
    && packages="g++ make git binutils" \
    && if ! command -v python3 > /dev/null; then packages="$packages python3 python3-venv"; fi \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $packages \
    && rm -rf /var/lib/apt/lists/*

ARG EXTRAS=test
ENV EXTRAS=${EXTRAS}
WORKDIR /cora
COPY . .
RUN make venv

CMD ["make", "demo"]
