"""What every error is: a problem (RFC 9457) as application/problem+json."""

from __future__ import annotations

from pydantic import Field

from penstock.control.api.fields import MaskedText, Response

MEDIA_TYPE = "application/problem+json"
# The class of a PenstockError follows; clients raise the same class again.
ERROR = "urn:penstock:error:"


class FieldProblem(Response):
    """What is wrong with one field of a request."""

    field: str = Field(examples=["query.limit"])
    message: MaskedText = Field(examples=["Input should be less than or equal to 500"])


class Problem(Response):
    """What went wrong, and what to do about it.

    `type` is `urn:penstock:error:CLASS` with the class of the error in `penstock.errors`, whose text is `node`,
    `detail` and `hint`; or `about:blank` where the status says all.
    """

    type: str = Field(examples=["urn:penstock:error:UnknownJob"])
    title: str = Field(examples=["UnknownJob"])
    status: int = Field(ge=400, le=599, examples=[404])
    detail: MaskedText = Field(examples=["there is no job 'vwpa'"])
    node: str | None = Field(default=None, description="node of the pipeline where the mistake is")
    hint: MaskedText | None = Field(default=None, examples=["jobs: vwap      did you mean 'vwap'?"])
    transient: bool = Field(default=False, description="whether the same request may succeed later")
    errors: list[FieldProblem] = []
