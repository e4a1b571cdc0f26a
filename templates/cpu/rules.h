// What the emitted `struct Rules` needs: the launch contract, indices, intervals, table reads and functions.
#pragma once

#define SACCADE_FN inline __attribute__((always_inline))

#include "saccade_templates/common/interval.h"
#include "saccade_templates/common/math.h"
#include "saccade_templates/common/params.h"
#include "saccade_templates/common/rules.h"
#include "saccade_templates/common/table.h"
