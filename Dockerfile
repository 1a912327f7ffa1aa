# The four commands, static, in one image: docker build -t kneefinder .
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X kneefinder/cmd/internal/cli.Version=$VERSION" -o /out/bin/ ./cmd/kneeload ./cmd/kneeanalyze ./cmd/kneemock ./cmd/kneesim \
 && mkdir /out/results

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/bin /bin
COPY --from=build --chown=65532:65532 /out/results /results
USER 65532:65532
ENV PATH=/bin
WORKDIR /
ENTRYPOINT ["kneeload"]
CMD ["--help"]
