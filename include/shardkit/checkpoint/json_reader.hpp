// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <shardkit/core/json_string.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// An error in a text, with its byte position.
struct JsonError {
    std::size_t at;
    std::string what;
};

/// Reads only the JSON (RFC 8259) that a caller expects, value by value: objects, arrays, strings and integers below
/// 2^64. The text cannot choose the depth of recursion. Every function throws JsonError.
class JsonReader {
  public:
    explicit JsonReader(std::string_view text) noexcept : text_(text) {}

    template <class... Pieces>
    [[noreturn]] void fail(const Pieces&... pieces) const {
        fail_at(at_, pieces...);
    }
    /// @throws JsonError with the byte at `at`
    template <class... Pieces>
    [[noreturn]] static void fail_at(std::size_t at, const Pieces&... pieces) {
        throw JsonError{at, concat(pieces...)};
    }
    std::size_t at() const noexcept { return at_; }

    /// Calls member(key, begin of the key) after the colon of each member of an object.
    template <class F>
    void object(F&& member) {
        list('{', '}', [&] {
            const std::size_t begin = at_;
            const std::string key = string();
            expect(':');
            member(key, begin);
        });
    }
    /// Calls element() before each element of an array.
    template <class F>
    void array(F&& element) {
        list('[', ']', element);
    }

    /// Reads a string with its escapes resolved, in UTF-8.
    std::string string() {
        expect('"');
        std::string value;
        for (;;) {
            const unsigned char c = next();
            if (c == '"') { return value; }
            if (c == '\\') {
                append_escaped(value);
            } else if (c < 0x20) {
                fail_at(at_ - 1, "a control character in a string");
            } else if (c < 0x80) {
                value += static_cast<char>(c);
            } else {
                append_sequence(value);
            }
        }
    }

    /// Reads an integer in JSON's form: no sign, fraction, exponent or leading zero.
    std::uint64_t number() {
        skip_space();
        const std::size_t begin = at_;
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (error == std::errc::result_out_of_range) { fail("a number of 2^64 or more"); }
        at_ = static_cast<std::size_t>(end - text_.data());
        const bool goes_on = at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E');
        if (at_ == begin || goes_on || (at_ - begin > 1 && text_[begin] == '0')) {
            fail_at(begin, "expected a whole number from 0");
        }
        return value;
    }

    /// Skips `null`. @returns whether it was there
    bool null() {
        skip_space();
        const bool there = text_.substr(at_, 4) == "null";
        if (there) { at_ += 4; }
        return there;
    }
    /// Skips a value of any form, looking only for its end.
    void skip_value() {
        std::size_t open = 0;
        do {
            skip_space();
            const char c = at_ < text_.size() ? text_[at_] : '\0';
            if (c == '"') {
                string();
            } else if (c == '{' || c == '[') {
                ++open;
                ++at_;
            } else if (open > 0 && (c == '}' || c == ']')) {
                --open;
                ++at_;
            } else if (open > 0 && (c == ',' || c == ':')) {
                ++at_;
            } else {
                const std::size_t begin = at_;
                constexpr std::string_view word = "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
                while (at_ < text_.size() && word.find(text_[at_]) != std::string_view::npos) { ++at_; }
                if (at_ == begin) { fail("expected a value"); }
            }
        } while (open > 0);
    }
    /// Checks that only white space is left.
    void end() {
        skip_space();
        if (at_ != text_.size()) { fail("expected nothing behind the last brace but spaces"); }
    }

  private:
    void skip_space() noexcept {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
            ++at_;
        }
    }
    bool peek(char c) noexcept {
        skip_space();
        return at_ < text_.size() && text_[at_] == c;
    }
    void expect(char c) {
        if (!peek(c)) { fail("expected '", c, at_ == text_.size() ? "', but the text ends" : "'"); }
        ++at_;
    }
    unsigned char next() {
        if (at_ == text_.size()) { fail("the text ends within a string"); }
        return static_cast<unsigned char>(text_[at_++]);
    }
    template <class F>
    void list(char open, char close, F&& item) {
        expect(open);
        if (peek(close)) {
            ++at_;
            return;
        }
        for (;;) {
            skip_space();
            item();
            if (peek(close)) {
                ++at_;
                return;
            }
            expect(',');
        }
    }

    void append_escaped(std::string& value) {
        const std::size_t begin = at_ - 1;
        const unsigned char c = next();
        constexpr std::string_view escaped = "\"\\/bfnrt";
        constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
        if (const auto which = escaped.find(static_cast<char>(c)); which != std::string_view::npos) {
            value += meant[which];
            return;
        }
        if (c != 'u') { fail_at(begin, "an escape that JSON does not have"); }
        std::uint32_t point = unit();
        if (point >= 0xD800 && point < 0xDC00) {
            if (next() != '\\' || next() != 'u') { fail_at(begin, "half of a surrogate pair"); }
            const std::uint32_t low = unit();
            if (low < 0xDC00 || low >= 0xE000) { fail_at(begin, "half of a surrogate pair"); }
            point = 0x10000 + ((point - 0xD800) << 10U) + (low - 0xDC00);
        } else if (point >= 0xDC00 && point < 0xE000) {
            fail_at(begin, "half of a surrogate pair");
        }
        append_point(value, point);
    }
    /// Reads four hexadecimal digits.
    std::uint32_t unit() {
        std::uint32_t value = 0;
        const std::string_view digits = text_.substr(at_, 4);
        const char* const end = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
        at_ += static_cast<std::size_t>(end - digits.data());
        if (end != digits.data() + 4) {
            next();
            fail_at(at_ - 1, "expected a hexadecimal digit");
        }
        return value;
    }
    static void append_point(std::string& value, std::uint32_t point) {
        // The first byte begins with as many ones as there are bytes, unless there is one.
        unsigned behind = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
        value += static_cast<char>((behind == 0 ? 0 : 0xFF00U >> (behind + 1)) | point >> (6 * behind));
        while (behind-- > 0) { value += static_cast<char>(0x80U | ((point >> (6 * behind)) & 0x3FU)); }
    }
    void append_sequence(std::string& value) {
        const std::size_t begin = at_ - 1;
        const std::size_t length = utf8_sequence(text_.substr(begin));
        if (length == 0) { fail_at(begin, "invalid UTF-8"); }
        value += text_.substr(begin, length);
        at_ = begin + length;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace shardkit::detail
