// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace program {

/// Reads a flag's value.
using Read = std::function<void(const std::string& flag, const std::string& given)>;

/// The flags of a program. Every value stays text until the program parses it, so that all messages name flag, value
/// and expectation.
class Flags {
  public:
    Flags(const std::string& description, const std::string& program);
    Flags(const Flags&) = delete;
    Flags& operator=(const Flags&) = delete;
    ~Flags();

    /// `names` as "-b,--minbytes", `value` as it stands in the help; the long name is the one for `use`.
    /// @return the long name
    std::string add(const std::string& names, const std::string& value, const std::string& help);
    /// The same, and `parse` has it read; in the order in which flags were added.
    void add(const std::string& name, const std::string& value, const std::string& help, Read read) {
        readers_.emplace_back(add(name, value, help), std::move(read));
    }

    /// A flag without a value; is_given tells.
    void add_switch(const std::string& name, const std::string& help);

    /// @return false when help was asked for; its text is then in `help`
    /// @throws InputError for unknown flags, flags without a value and flags given twice, or as a Read does
    bool parse(int count, const char* const* arguments, std::string& help);

    /// Calls f(flag, text) when the flag was given.
    template <class F>
    void use(const std::string& flag, F f) const {
        if (is_given(flag)) { f(flag, given_.at(flag)); }
    }
    /// False too for a flag that this program does not have.
    bool is_given(const std::string& flag) const;

  private:
    struct App;
    std::unique_ptr<App> app_;
    std::map<std::string, std::string> given_;
    std::vector<std::pair<std::string, Read>> readers_;
};

}  // namespace program
