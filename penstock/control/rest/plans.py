"""`/api/v1/plans`: the plan of a pipeline before it is submitted."""

from __future__ import annotations

from fastapi import APIRouter

from penstock.control.api.nodes import PlanPreview
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.forms import MultipartPlan

router = APIRouter(tags=["jobs"])


@router.post("/plans", **operation("check_plan", "operator", 409, 507))
def check_plan(form: MultipartPlan, manager: TheManager) -> PlanPreview:
    """Build the plan of a pipeline as a submission does, and store nothing."""
    return manager.preview(form.submission(), form.source())
