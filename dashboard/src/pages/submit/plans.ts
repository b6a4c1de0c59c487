// Plans of pipelines that are not submitted yet, and their submission.

import { post } from '../../lib/api';
import type { Job, JobNode } from '../../lib/types';

export interface PlanPreview {
  pipeline: string;
  explain: string;
  nodes: JobNode[];
  warnings: string[];
}

export const plans = {
  check: (form: FormData) => post<PlanPreview>('/plans', form),
  submit: (form: FormData) => post<Job>('/jobs', form),
};
