// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <CLI/CLI.hpp>

#include "input_error.hpp"

namespace program {

struct Flags::App {
    App(const std::string& description, const std::string& program) : cli(description, program) {}

    CLI::App cli;
};

Flags::Flags(const std::string& description, const std::string& program)
    : app_(std::make_unique<App>(description, program)) {}
Flags::~Flags() = default;

std::string Flags::add(const std::string& names, const std::string& value, const std::string& help) {
    const std::size_t comma = names.find(',');
    const std::string flag = comma == names.npos ? names : names.substr(comma + 1);
    app_->cli.add_option(names, given_[flag], help)->type_name(value);
    return flag;
}

void Flags::add_switch(const std::string& name, const std::string& help) { app_->cli.add_flag(name, help); }

bool Flags::parse(int count, const char* const* arguments, std::string& help) {
    CLI::App& cli = app_->cli;
    try {
        cli.parse(count, arguments);
        for (const auto& [flag, read] : readers_) { use(flag, read); }
        return true;
    } catch (const CLI::CallForHelp&) {
        help = cli.help();
        return false;
    } catch (const CLI::ExtrasError&) {
        const auto rest = cli.remaining();
        throw InputError("unknown argument '" + (rest.empty() ? "" : rest.front()) +
                         "': expected one of the flags that --help lists");
    } catch (const CLI::ParseError& error) {
        for (const CLI::Option* option : cli.get_options()) {
            const auto& given = option->results();
            if (given.size() > 1 && !option->get_type_name().empty()) {
                throw InputError(option->get_name() + " '" + given[0] + "' and '" + given[1] +
                                 "': expected one value, the flag once");
            }
        }
        std::string what = error.what();
        for (char& c : what) { c = c == '\n' ? ' ' : c; }
        throw InputError(what);
    }
}

bool Flags::is_given(const std::string& flag) const {
    const CLI::Option* const option = app_->cli.get_option_no_throw(flag);
    return option != nullptr && option->count() > 0;
}

}  // namespace program
