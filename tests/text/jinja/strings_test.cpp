#include "text/jinja/jinja_test.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

TEST(JinjaStrings, SplittingAndJoining) {
  check({{"' a  b '.split(), 'a,b,,c'.split(','), ''.split(','), ''.split()",
          "(['a', 'b'], ['a', 'b', '', 'c'], [''], [])"},
         {"'a b c'.split(none, 1), 'a,b,c'.rsplit(',', 1), ' a  b  c '.rsplit(none, 1)",
          "(['a', 'b c'], ['a,b', 'c'], [' a  b', 'c'])"},
         {"'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'x'.partition('=')",
          "(('a', '=', 'b=c'), ('a=b', '=', 'c'), ('x', '', ''))"},
         {"'a\r\nb\u2028c'.splitlines(), 'a\nb'.splitlines(true)", "(['a', 'b', 'c'], ['a\\n', 'b'])"},
         {"'-'.join('abc'), ', '.join({'k': 1})", "('a-b-c', 'k')"}});
  EXPECT_EQ(failure("{{ 'a'.split('') }}").message(), "empty separator");
  EXPECT_EQ(failure("{{ ''.join([1]) }}").message(), "sequence item 0: expected str instance, int found");
}

TEST(JinjaStrings, StrippingPaddingAndReplacing) {
  check({{"'  x\u3000'.strip(), 'xxaxx'.lstrip('x'), 'xyaz'.rstrip('za')", "('x', 'axx', 'xy')"},
         {"'ab'.center(5, '*'), 'abc'.center(6, '*'), 'a'.ljust(3, '.'), 'a'.rjust(3)",
          "('**ab*', '*abc**', 'a..', '  a')"},
         {"'-42'.zfill(5), 'a\tb'.expandtabs(4)", "('-0042', 'a   b')"},
         {"'aXa'.replace('a', 'b', 1), 'é你'.replace('', '-'), 'abc'.removeprefix('a'), 'abc'.removesuffix('bc')",
          "('bXa', '-é-你-', 'bc', 'a')"}});
}

TEST(JinjaStrings, SearchingCountsCodePoints) {
  check({{"'é你é'.find('你'), 'é你é'.rfind('é'), 'abc'.find('x'), 'abc'.index('c')", "(1, 2, -1, 2)"},
         {"'hello'.startswith('he'), 'hello'.startswith(('x', 'h')), 'hello'.startswith('l', 2), "
          "'hello'.endswith('lo', 0, 4)",
          "(True, True, True, False)"},
         {"'aaaa'.count('aa'), 'abc'.count(''), 'banana'.find('an', 2, 6)", "(2, 4, 3)"}});
  EXPECT_EQ(failure("{{ 'a'.index('b') }}").message(), "substring not found");
}

TEST(JinjaStrings, CaseFollowsUnicode) {
  check({{"'straße'.upper(), 'ÄÖ'.lower(), 'ǆ'.title(), 'ŉ'.upper()", "('STRASSE', 'äö', 'ǅ', 'ʼN')"},
         {"'ΑΣ ΣΑ'.lower()", "ας σα"},
         {"'hELLO wORLD'.capitalize(), 'hello world'.title(), 'aB'.swapcase()", "('Hello world', 'Hello World', 'Ab')"},
         {"'ab'.isalpha(), 'a1'.isalnum(), '²'.isdigit(), '²'.isdecimal(), '½'.isnumeric(), ''.isalpha()",
          "(True, True, True, False, True, False)"},
         {"'AB1'.isupper(), 'ab'.islower(), 'Ab Cd'.istitle(), ' '.isspace(), 'a\n'.isprintable()",
          "(True, True, True, True, False)"}});
}

TEST(JinjaStrings, PercentFormatting) {
  check({{"'%s %d %5.2f|%-4s|%04d|%+d' % ('a', 3.9, 2.345, 'x', -7, 5)", "a 3  2.35|x   |-007|+5"},
         {"'%x %X %o %#x %c%c %r %%' % (255, 255, 8, 255, 65, 'b', 'q')", "ff FF 10 0xff Ab 'q' %"},
         {"'%(k)s' % {'k': [1]}, '%s' % none, '%.3s' % 'abcdef', '%*d' % (4, 1)", "('[1]', 'None', 'abc', '   1')"},
         {"'%e %g %G' % (12345.678, 0.00001, 1e20)", "1.234568e+04 1e-05 1E+20"}});
  EXPECT_EQ(failure("{{ '%s' % (1, 2) }}").message(), "not all arguments converted during string formatting");
  EXPECT_EQ(failure("{{ '%d' % 'a' }}").message(), "%d format: a real number is required, not str");
  EXPECT_EQ(failure("{{ '%' % 1 }}").message(), "incomplete format");
}

TEST(JinjaStrings, BraceFormatting) {
  check({{"'{} {1} {k}'.format(1, 2, k=3) if false else '{0} {1} {k}'.format(1, 2, k=3)", "1 2 3"},
         {"'{:>5}|{:<5}|{:^5}|{:*^5}'.format('a', 'b', 'c', 'd')", "    a|b    |  c  |**d**"},
         {"'{:05d} {:+d} {:,} {:010,} {:#x} {:b}'.format(-5, 5, 1234567, 1234, 255, 5)",
          "-0005 +5 1,234,567 00,001,234 0xff 101"},
         {"'{:.2f} {:e} {:g} {:.1%} {:.3}'.format(3.14159, 12345.678, 0.00001, 0.256, 'abcdef')",
          "3.14 1.234568e+04 1e-05 25.6% abc"},
         {"'{0[k]} {0[l][1]} {1!r:>5} {{}}'.format({'k': 1, 'l': [1, 2]}, 'a')", "1 2   'a' {}"},
         {"'{:{w}}|'.format('a', w=4), '{}'.format(x)", "('a   |', '')"}});
  EXPECT_EQ(failure("{{ '{'.format(1) }}").message(), "Single '{' encountered in format string");
  EXPECT_EQ(failure("{{ '{:d}'.format('a') }}").message(), "unknown format code 'd' for object of type 'str'");
  EXPECT_EQ(failure("{{ '{}'.format() }}").message(), "Replacement index 0 out of range for positional args tuple");
}

TEST(JinjaStrings, BytesThatAreNotUtf8PassThroughUnchanged) {
  Dict context;
  context.set("s", Value("a\xff\xc3z"));
  EXPECT_EQ(Template::parse("{{ s }}{{ s | length }}{{ s[1] }}{{ [s] }}").render(context),
            "a\xff\xc3z4\xff['a\\xff\\xc3z']");
}

TEST(JinjaUnicode, DecodesForwardsAndBackwards) {
  const std::string text = "aé你😀\xf0\x9f";
  std::u32string forwards, backwards;
  for (size_t at = 0; at < text.size();) forwards += unicode::decode(text, at);
  for (size_t at = text.size(); at > 0;) backwards.insert(backwards.begin(), unicode::decode_back(text, at));
  EXPECT_EQ(forwards, backwards);
  ASSERT_EQ(forwards.size(), 6u);
  EXPECT_EQ(forwards[3], U'\U0001F600');
  EXPECT_EQ(forwards[4], unicode::stray_byte + 0xf0);
  std::string again;
  for (char32_t c : forwards) unicode::append(again, c);
  EXPECT_EQ(again, text);
}

}  // namespace
}  // namespace gristmill::jinja
