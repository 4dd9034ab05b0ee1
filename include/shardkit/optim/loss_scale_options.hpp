// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/number_text.hpp>

namespace shardkit {

struct LossScaleOptions {
    double initial = 65536;
    double growth_factor = 2;
    double backoff_factor = 0.5;
    std::uint32_t growth_interval = 2000;
};

/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const LossScaleOptions& options, SourceLocation where = SourceLocation::current()) {
    if (!std::isfinite(options.initial) || options.initial <= 0) {
        throw_invalid_argument(where, "LossScale: initial is ", detail::number_text(options.initial),
                               ", expected a finite number > 0");
    }
    if (!std::isfinite(options.growth_factor) || options.growth_factor <= 1) {
        throw_invalid_argument(where, "LossScale: growth_factor is ", detail::number_text(options.growth_factor),
                               ", expected a finite number > 1");
    }
    if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
        throw_invalid_argument(where, "LossScale: backoff_factor is ", detail::number_text(options.backoff_factor),
                               ", expected a number in (0, 1)");
    }
    if (options.growth_interval == 0) {
        throw_invalid_argument(where, "LossScale: growth_interval is 0, expected at least 1 step");
    }
}

}  // namespace shardkit
