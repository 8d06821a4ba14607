# syntax=docker/dockerfile:1
# The image of ip-address-controller, for each platform built on a machine of its kind:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max \
#     --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" --output type=image,rewrite-timestamp=true,push=true \
#     --tag ghcr.io/darkbrains/ip-address-controller:VERSION .
#
# The same source with the same RUST_IMAGE (give a release its digest) makes the same image.
ARG RUST_IMAGE=rust:1.95.0-bookworm

FROM ${RUST_IMAGE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# Writes the list of crates into the program, where scanners and --sbom find it.
RUN cargo install --locked cargo-auditable@0.7.7
WORKDIR /src
COPY . .
ARG SOURCE_DATE_EPOCH=0
ENV CARGO_INCREMENTAL=0 SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH}
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo auditable build --release --locked --bin ip-address-controller \
 && deploy/image/rootfs target/release/ip-address-controller /rootfs

FROM scratch
LABEL org.opencontainers.image.source="https://github.com/darkbrains/ip-address-controller" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /rootfs /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/ip-address-controller"]
