# An image for a CPU, and one for CUDA:
#   docker build -t attn .
#   docker build -t attn:cuda --build-arg TORCH=cuda .
# A run in the current folder, with its results in ./runs and the cache in ./.attn:
#   docker run --rm -v "$PWD:/data" attn train variant=talking_heads heads=24
#   docker run --rm -v "$PWD:/data" --gpus all attn:cuda train variant=talking_heads heads=24
FROM python:3.12-slim-bookworm

# the build of torch: cpu, or cuda, which brings CUDA's libraries, so that the host needs no more than the driver
ARG TORCH=cpu

# the attention kernel is built at first use, for the processor that it runs on
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

WORKDIR /attn
COPY constraints.txt pyproject.toml README.md LICENSE cli.py ./
COPY attention attention
COPY conf conf
COPY experiments experiments
RUN case "$TORCH" in \
        cpu) pip install --no-cache-dir -c constraints.txt --index-url https://download.pytorch.org/whl/cpu torch ;; \
        cuda) ;; \
        *) echo "TORCH=$TORCH: must be cpu or cuda" >&2; exit 1 ;; \
    esac \
    && pip install --no-cache-dir -c constraints.txt -e ".[all]"

ENV ATTN_CACHE=/data/.attn
WORKDIR /data
ENTRYPOINT ["attn"]
CMD ["--help"]
