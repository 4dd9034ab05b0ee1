// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "colours.hpp"
#include "draw.hpp"

namespace mesh_picture {

double draw_legend(Svg& svg, const Facts& facts, double y) {
    constexpr double swatch = 14;
    constexpr double letter = 6.8;  // of a wide font of this size
    double x = margin;
    const auto entry = [&](const std::string& look, const std::string& text) {
        svg.rectangle({x, y, swatch, swatch}, look);
        svg.text(x + swatch + 6, y + 12, text, {12, ink});
        x += swatch + 6 + letter * static_cast<double>(text.size()) + 22;
    };
    const std::size_t tp = facts.grid.extent("tp");
    for (std::size_t i = 0; i < tp * facts.ep(); ++i) {
        std::string text = facts.of_experts() ? "ep " + std::to_string(i / tp) : "";
        if (tp > 1) { text += (text.empty() ? "tp " : ", tp ") + std::to_string(i % tp); }
        entry(fill(colour_of_tp(i)), text.empty() ? "held by the rank" : text);
    }
    if (tp > 1 && !facts.of_experts()) { entry(fill(neutral), "not split over tp"); }
    if (tp > 1 || facts.of_experts()) {
        x = margin;
        y += 24;
        entry(fill(grey), "full colour: held by the rank");
    }
    entry(outline(grey, "0.8") + " " + attribute("fill-opacity", "0"), "outline: the whole parameter");
    const std::string tint = "fill=\"" + std::string(grey) + "\" fill-opacity=\"0.22\"";
    entry(tint, facts.of_experts() ? "pale: the rank's experts, held by ranks with the same"
                : tp == 1          ? "pale: held by another rank"
                                   : "pale: the rank's part in tp, held by other data ranks");
    return y + swatch;
}

}  // namespace mesh_picture
