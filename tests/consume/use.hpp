// SPDX-License-Identifier: Apache-2.0
#pragma once

int count_in_another_unit();
