"""Certificates for the tests: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


class Authority:
    """Signs certificates for 127.0.0.1 and writes them to a folder: `ca.pem`, `NAME.pem`, `NAME.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Test authority")])
        own = self._build(self._name, self._key, is_authority=True)
        (folder / "ca.pem").write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, password: str | None = None) -> tuple[Path, Path]:
        """The files of a new certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._build(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), key, is_authority=False)
        certificate, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        how = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, how))
        return certificate, key_file

    def _build(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_BEGIN)
            .not_valid_after(_BEGIN + timedelta(days=36_500))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(address, critical=False)
            .sign(self._key, hashes.SHA256())
        )
