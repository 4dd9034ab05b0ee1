// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include <algorithm>

#include "colours.hpp"
#include "draw.hpp"

namespace mesh_picture {

std::string picture(const Options& o, const Facts& facts) {
    constexpr double least_width = 1000;
    const double width = std::max(least_width, width_of_ranks(facts));
    const std::string shared = o.ep > 0 ? ", experts shared by " + std::to_string(o.ep) + " ranks" : "";
    const std::string title = "Mesh " + o.mesh.describe() + shared + ", policy " + o.policy.text();
    const std::string passes =
        std::to_string(o.microbatches) + (o.microbatches == 1 ? " microbatch" : " microbatches");
    Svg svg;
    svg.text(margin, 44, title, {24, ink, "start", true});
    svg.text(margin, 68,
             std::to_string(facts.ranks.size()) + (facts.ranks.size() == 1 ? " rank: " : " ranks: ") +
                 std::to_string(o.mesh.dp) + " data parallel (dp) x " + std::to_string(o.mesh.tp) +
                 " tensor parallel (tp) x " + std::to_string(o.mesh.cp) + " context parallel (cp); a step of " +
                 passes,
             {14, grey});
    double y = draw_legend(svg, facts, 92);
    y = draw_group(svg, facts, y + 38, width);
    y = draw_ranks(svg, facts, y + 36, width);
    y = draw_collectives(svg, facts, y + 36, width);
    svg.text(margin, y + 34,
             "Recorded from the containers' shards and the traffic log by mesh_picture --mesh " + o.mesh.describe() +
                 (o.ep > 0 ? " --ep " + std::to_string(o.ep) : "") + " --policy " + o.policy.text() +
                 " --microbatches " + std::to_string(o.microbatches),
             {11, grey});
    return svg.finish(width, y + 54, title);
}

}  // namespace mesh_picture
