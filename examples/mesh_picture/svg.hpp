// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace mesh_picture {

struct Rectangle {
    double x = 0;
    double y = 0;
    double width = 0;
    double height = 0;
};

struct TextStyle {
    double size = 12;
    std::string_view colour = "#1f2937";
    std::string_view anchor = "start";
    bool bold = false;
};

/// Elements of a picture, one a line. Numbers have at most two digits behind the point, so that the same picture is
/// the same text everywhere.
class Svg {
  public:
    /// `attributes`: of SVG, in its own words.
    void rectangle(const Rectangle& r, const std::string& attributes) {
        body_ += "<rect x=\"" + number(r.x) + "\" y=\"" + number(r.y) + "\" width=\"" + number(r.width) +
                 "\" height=\"" + number(r.height) + "\" " + attributes + "/>\n";
    }
    void line(double x1, double y1, double x2, double y2, const std::string& attributes) {
        body_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" +
                 number(y2) + "\" " + attributes + "/>\n";
    }
    void circle(double x, double y, double radius, const std::string& attributes) {
        body_ += "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" + number(radius) + "\" " +
                 attributes + "/>\n";
    }
    /// @pre no character of `text` means something in XML
    void text(double x, double y, const std::string& text, TextStyle style = {}) {
        body_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" + number(style.size) +
                 "\" fill=\"" + std::string(style.colour) + "\"";
        if (style.anchor != "start") { body_ += " text-anchor=\"" + std::string(style.anchor) + "\""; }
        if (style.bold) { body_ += " font-weight=\"bold\""; }
        body_ += ">" + text + "</text>\n";
    }
    void open(const std::string& attributes) { body_ += "<g " + attributes + ">\n"; }
    void close() { body_ += "</g>\n"; }

    /// The file.
    std::string finish(double width, double height, const std::string& title) const {
        const std::string size = number(width) + "\" height=\"" + number(height);
        return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size + "\" viewBox=\"0 0 " + number(width) +
               " " + number(height) + "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n<title>" +
               title + "</title>\n<rect width=\"" + size + "\" fill=\"#ffffff\"/>\n" + body_ + "</svg>\n";
    }

    /// "12", "12.5"
    static std::string number(double value) {
        std::array<char, 32> digits{};
        std::snprintf(digits.data(), digits.size(), "%.2f", value);
        std::string text = digits.data();
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') { text.pop_back(); }
        return text == "-0" ? "0" : text;
    }

  private:
    std::string body_;
};

/// name="value" of an element.
inline std::string attribute(std::string_view name, std::string_view value) {
    return std::string(name) + "=\"" + std::string(value) + "\"";
}
inline std::string attribute(std::string_view name, std::size_t value) {
    return attribute(name, std::to_string(value));
}

}  // namespace mesh_picture
