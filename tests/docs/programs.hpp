// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every program of a page begins with; what many of them instantiate is compiled once, in templates.cpp.
#include <shardkit/shardkit.hpp>

#include "extern_templates.hpp"

#ifndef DOCS_TEMPLATES
#define DOCS_TEMPLATES extern
#endif
SHARDKIT_TEMPLATES(DOCS_TEMPLATES, shardkit::rules::AdamWRule)
SHARDKIT_THREADS_TEMPLATES(DOCS_TEMPLATES)
