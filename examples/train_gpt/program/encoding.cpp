// SPDX-License-Identifier: Apache-2.0
#include "encoding.hpp"

#include <algorithm>
#include <functional>
#include <istream>
#include <queue>
#include <utility>

#include "../../common/input_error.hpp"
#include "unicode_classes.hpp"

namespace train_gpt {

namespace {

constexpr std::string_view end_of_text = "<|endoftext|>";

/// What GPT-2's rules for words tell apart.
enum class Kind : std::uint8_t { other, letter, number, space };

/// The kind of every character.
std::vector<Kind> kinds_of_characters() {
    std::vector<Kind> kinds(0x110000);
    const auto mark = [&](std::span<const std::uint32_t> runs, Kind kind) {
        std::size_t at = 0;
        for (std::size_t i = 0; i < runs.size(); at += runs[i++]) {
            if (i % 2 == 1) { std::fill_n(kinds.begin() + static_cast<std::ptrdiff_t>(at), runs[i], kind); }
        }
    };
    mark(unicode_letters, Kind::letter);
    mark(unicode_numbers, Kind::number);
    mark(unicode_spaces, Kind::space);
    return kinds;
}

struct Character {
    std::size_t length;
    Kind kind;
};

/// A text in UTF-8.
struct Characters {
    std::string_view text;
    const std::string& given;

    unsigned byte(std::size_t at) const { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0; }
    /// The character that begins at a byte; at the end a space of no length, which ends words of other kinds.
    Character operator()(std::size_t at) const {
        static const std::vector<Kind> kinds = kinds_of_characters();
        if (at == text.size()) { return {0, Kind::space}; }
        const unsigned first = byte(at);
        const std::size_t length = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        constexpr std::array<std::uint32_t, 5> lowest{0, 0, 0x80, 0x800, 0x10000};
        std::uint32_t code = length == 1 ? first : first & (0x7fU >> length);
        bool whole = length > 0 && first < 0xf8;
        for (std::size_t i = 1; i < length; ++i) {
            whole = whole && byte(at + i) >> 6U == 2;
            code = code << 6U | (byte(at + i) & 0x3fU);
        }
        program::require(whole && code >= lowest[length] && code <= 0x10ffff && code >> 11U != 0x1b, given,
                         " has byte ", first, " at ", at,
                         ", where no character begins: expected UTF-8 with --encoding");
        return {length, kinds[code]};
    }
    /// The first byte behind characters of one kind, from `at` on.
    std::size_t end_of(Kind kind, std::size_t at) const {
        for (Character next = (*this)(at); next.length > 0 && next.kind == kind; next = (*this)(at)) {
            at += next.length;
        }
        return at;
    }
    /// Where the word that begins at `at` ends: the first of what is matched by
    /// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    std::size_t end_of_word(std::size_t at) const {
        for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
            if (text.substr(at).starts_with(ending)) { return at + ending.size(); }
        }
        const std::size_t begin = at + (text[at] == ' ' ? 1 : 0);
        if (const Kind kind = (*this)(begin).kind; kind != Kind::space) { return end_of(kind, begin); }
        const std::size_t end = end_of(Kind::space, at);
        if (end == text.size()) { return end; }
        // The last space belongs to what follows, unless it is the only one.
        std::size_t last = end - 1;
        while (byte(last) >> 6U == 2) { --last; }
        return last == at ? end : last;
    }
};

}  // namespace

Encoding::Encoding() {
    for (std::size_t byte = 0; byte < bytes_vocabulary; ++byte) {
        of_byte_[byte] = static_cast<Token>(byte);
        bytes_of_.emplace_back(1, static_cast<char>(byte));
    }
}

Encoding::Encoding(std::istream& merges, const std::string& given) {
    std::unordered_map<std::string, Token> named;  // by the characters that stand for the bytes in such files
    const auto add = [&](const std::string& name, const std::string& bytes) {
        named.emplace(name, static_cast<Token>(bytes_of_.size()));
        bytes_of_.push_back(bytes);
    };
    // Bytes that can be printed are named by the character of their number, the others by those from 256 on.
    const auto printable = [](std::size_t byte) {
        return (byte > 32 && byte < 127) || (byte > 160 && byte != 173 && byte < 256);
    };
    std::size_t code = bytes_vocabulary;
    for (const bool these : {true, false}) {
        for (std::size_t byte = 0; byte < bytes_vocabulary; ++byte) {
            if (printable(byte) != these) { continue; }
            const std::size_t number = these ? byte : code++;
            std::string name(1, static_cast<char>(number));
            if (number > 127) {
                name = {static_cast<char>(0xc0 | number >> 6U), static_cast<char>(0x80 | number % 64)};
            }
            of_byte_[byte] = static_cast<Token>(bytes_of_.size());
            add(name, std::string(1, static_cast<char>(byte)));
        }
    }
    std::string line;
    std::size_t number = 1;
    const auto refuse = [&](const std::string& expected) {
        throw program::InputError(given, " has '", line.substr(0, 60), "' in line ", number, ": expected ", expected);
    };
    for (; std::getline(merges, line); ++number) {
        if (line.ends_with('\r')) { line.pop_back(); }
        if (number == 1 && line.starts_with("#version")) { continue; }
        const std::size_t space = std::min(line.find(' '), line.size());
        const auto first = named.find(line.substr(0, space));
        const auto second = named.find(line.substr(std::min(space + 1, line.size())));
        if (first == named.end() || second == named.end()) {
            refuse("two tokens of the lines before, as in GPT-2's merges.txt");
        }
        const std::string name = first->first + second->first;
        if (named.contains(name)) { refuse("a token that no line before has"); }
        if (bytes_of_.size() + 1 == most_tokens) { refuse("at most " + std::to_string(most_tokens) + " tokens"); }
        merges_.emplace(std::uint32_t{first->second} << 16U | second->second, static_cast<Token>(bytes_of_.size()));
        add(name, bytes_of_[first->second] + bytes_of_[second->second]);
    }
    program::require(!merges_.empty(), given, " is empty: expected lines of two tokens");
    bytes_of_.emplace_back(end_of_text);
}

/// The pair that was merged first in the file goes first, in all its places from the left: as no merge makes a token
/// of an earlier one, what is made of it comes later in any case.
std::vector<Token> Encoding::merged(std::string_view word) const {
    std::vector<Token> tokens;
    for (const char byte : word) { tokens.push_back(of_byte(static_cast<unsigned char>(byte))); }
    if (merges_.empty()) { return tokens; }
    const std::size_t size = tokens.size();
    std::vector<std::size_t> before(size), behind(size);  // of each token its neighbours; size: none
    using Pair = std::pair<std::size_t, std::size_t>;     // what it becomes, and where it begins
    std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
    const auto merge_at = [&](std::size_t i) {
        if (i == size || behind[i] == size) { return std::size_t{most_tokens}; }
        const auto found = merges_.find(std::uint32_t{tokens[i]} << 16U | tokens[behind[i]]);
        return found == merges_.end() ? std::size_t{most_tokens} : found->second;
    };
    const auto add = [&](std::size_t i) {
        if (const std::size_t merge = merge_at(i); merge != most_tokens) { pairs.emplace(merge, i); }
    };
    for (std::size_t i = 0; i < size; ++i) {
        before[i] = i == 0 ? size : i - 1;
        behind[i] = i + 1;
    }
    for (std::size_t i = 0; i < size; ++i) { add(i); }
    while (!pairs.empty()) {
        const auto [merge, at] = pairs.top();
        pairs.pop();
        if (merge_at(at) != merge) { continue; }  // one of the two has become a part of another pair
        const std::size_t second = behind[at];
        tokens[at] = static_cast<Token>(merge);
        behind[at] = std::exchange(behind[second], size);
        if (behind[at] != size) { before[behind[at]] = at; }
        add(before[at]);
        add(at);
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size; i = behind[i]) { tokens[kept++] = tokens[i]; }
    tokens.resize(kept);
    return tokens;
}

std::vector<Token> Encoding::encode(std::string_view text, const std::string& given) const {
    if (merges_.empty()) { return merged(text); }
    std::vector<Token> tokens;
    std::unordered_map<std::string_view, std::vector<Token>> known;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(end_of_text, begin), text.size());
        const Characters part{text.substr(0, end), given};
        while (begin < end) {
            const std::string_view word = text.substr(begin, part.end_of_word(begin) - begin);
            const auto [found, is_new] = known.try_emplace(word);
            if (is_new) { found->second = merged(word); }
            tokens.insert(tokens.end(), found->second.begin(), found->second.end());
            begin += word.size();
        }
        if (end == text.size()) { break; }
        tokens.push_back(static_cast<Token>(size() - 1));
        begin = end + end_of_text.size();
    }
    return tokens;
}

std::string Encoding::decode(std::span<const Token> tokens) const {
    std::string text;
    for (const Token token : tokens) { text += bytes_of_[token]; }
    return text;
}

}  // namespace train_gpt
