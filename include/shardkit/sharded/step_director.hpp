// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/sharded/step_observer.hpp>
