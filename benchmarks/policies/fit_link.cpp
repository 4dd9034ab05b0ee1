// SPDX-License-Identifier: Apache-2.0
#include "fit_link.hpp"

#include <cmath>
#include <stdexcept>

namespace benchmarks::policies {

FittedLink fit_link(std::span<const LinkSample> samples) {
    // Minimises the sum of (a u + b v - 1)^2 with u = messages / seconds, v = bytes / seconds.
    double uu = 0;
    double uv = 0;
    double vv = 0;
    double u1 = 0;
    double v1 = 0;
    bool sizes_differ = false;
    for (const LinkSample& s : samples) {
        if (!(s.seconds > 0)) { throw std::invalid_argument("fit_link: a sample took no time"); }
        sizes_differ = sizes_differ || s.bytes != samples[0].bytes;
        const double u = s.messages / s.seconds;
        const double v = s.bytes / s.seconds;
        uu += u * u;
        uv += u * v;
        vv += v * v;
        u1 += u;
        v1 += v;
    }
    if (!sizes_differ) { throw std::invalid_argument("fit_link: expected samples of at least two sizes"); }
    const double determinant = uu * vv - uv * uv;
    double latency = (u1 * vv - v1 * uv) / determinant;
    double per_byte = (v1 * uu - u1 * uv) / determinant;
    if (!(latency >= 0)) {
        latency = 0;
        per_byte = v1 / vv;
    } else if (!(per_byte >= 0)) {
        latency = u1 / uu;
        per_byte = 0;
    }
    FittedLink fitted{{latency, 1 / per_byte}, samples.size(), 0};
    for (const LinkSample& s : samples) {
        fitted.error += std::abs(fitted.link.seconds(s.messages, s.bytes) / s.seconds - 1);
    }
    fitted.error /= static_cast<double>(samples.size());
    return fitted;
}

}  // namespace benchmarks::policies
