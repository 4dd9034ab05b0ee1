// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/communicator.hpp>
#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/memory/host_buffer.hpp>

// All that an engine consists of.
