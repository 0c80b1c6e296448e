"""What graphflow is made of: `make sbom` lists it, `make audit` asks for known vulnerabilities of it."""
