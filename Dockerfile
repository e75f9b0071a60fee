# SPDX-License-Identifier: MIT
# The command moe in an image of its own: docker build -t moe . && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/models" moe inspect model.moe
FROM debian:bookworm-slim AS build
COPY . /src
RUN bash /src/scripts/install-deps.sh package
RUN bash /src/scripts/package.sh /src/build/package /packages

FROM debian:bookworm-slim
COPY --from=build /packages /packages
RUN apt-get update \
  && apt-get install -y --no-install-recommends /packages/libmoe0.*_*.deb /packages/moe_*.deb \
  && rm -rf /packages /var/lib/apt/lists/*
USER nobody
WORKDIR /models
ENTRYPOINT ["moe"]
