// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Codes of 8 bits.

#include <shardkit/quantize/quantize.hpp>

#include <shardkit/detail/show_macros.inc>
