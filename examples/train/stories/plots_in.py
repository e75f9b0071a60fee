# SPDX-License-Identifier: MIT
"""Plots at home and between friends: a wish, an obstacle with its cause, an ending."""

COOKING = (
    "cook",
    """
{time}, {h} wanted to make {dish} for {purpose}. {He} [put on an apron|washed {his} hands] and [took out the big bowl|lit the stove]. But when {he} looked [in the cupboard|on the shelf], there was no {missing} left. "[Without {missing} I cannot make {dish}|I need {missing}]," said {h}, and {he} was {sad}.
So {he} took a [cup|little basket] and went to {owner}. "[Good morning|Hello]," said {h}. "[Could you give me some {missing}|Do you have a little {missing} for me], please?" "[I would like to help you|Gladly]," said {owner}, "but [first you must help me|I have so much work today]. [My yard is full of leaves|My wood must be carried in]." {h} [did not complain|nodded] and worked [for an hour|until it was done]. Then {he} got the {missing}, and {he} [ran|hurried] home.
{He} mixed everything, and {f} helped {him} to stir. Soon the whole house smelled {smell}. [{f} burned {fhis} finger a little, because {fhe} could not wait.|They waited and waited.] When it was [ready|done], they [set the table|called everyone]. {h} also [brought some to {owner}|carried a piece to {owner}], because without {owner} there would have been no {dish}.
"[It is the best I have ever eaten|It tastes wonderful]," said {e}.
""",
    "{h} wrote down [how {he} had made it|everything], so that {he} could make it again",
)

QUARREL = (
    "quarrel",
    """
{h} and {f} were [best friends|good friends] and played together every day. {time}, they found a {col} {toy} {inplace}. "[It is mine|I saw it first]!" said {h}. "No, [it is mine|I saw it first]!" said {f}. {h} pulled on one side, and {f} pulled on the other side. Then there was a [loud|terrible] crack, and the {toy} was broken.
"[It is your fault|You broke it]!" they [both cried|shouted]. {f} [went home|ran away] without a word, and {h} [sat alone|stayed behind] {inplace}. [At first {he} was angry, but then {he} was only {sad}.|It was very quiet, and it was no fun to play alone.] {He} [thought of all the games they had played|missed {f}].
In the evening, {he} asked {e} what to do. "[What is more important to you, the {toy} or your friend?|A {toy} can be mended, and a friendship too.]" said {e}. "[The first step is the hardest|Somebody must say sorry first]." So {h} [took the broken {toy}|took some glue] and went to {f}. "I am sorry," {he} said. "[I was wrong|I should not have pulled]." "I am sorry too," said {f}. "[Come in|Let us mend it together]." They [glued|mended] the {toy}, and although [one could still see the crack|it looked a little strange], [it was now the best {toy} of all|they liked it even more].
""",
    "Since that day, the {toy} has lived [one week with {h} and one week with {f}|in both houses]",
)

DARK = (
    "dark",
    """
{h} was [afraid of the dark|not able to sleep]. Every [night|evening], when the light went out, {he} [pulled the blanket over {his} head|held {his} {toy} tight]. {One} night, {he} heard {noise}. It came from [under the bed|the window|behind the door]. {h}'s heart [beat fast|was pounding]. "[It must be a monster!|Who is there?|A ghost!]" {he} whispered. Nobody answered. There it was again: {noise}.
{h} wanted to [call {e}|run away], but then {he} thought of {f}, who [was never afraid|always said: look first and then be afraid]. So {he} took [a lantern|a candle|the lamp] and [put one foot on the floor|got out of bed]. The floor was cold. Step by step, {he} went [closer|nearer] and held up the light.
And what did {he} see? It was only {source}, {doing}! {h} [laughed|had to laugh] so loudly that {e} [woke up|came in]. "[What is so funny in the middle of the night|Why are you not asleep]?" asked {e}. "I [have found|met] my monster," said {h}, "and [it is not a monster at all|it is more afraid than I am]." {E} [laughed too|smiled] and [tucked {him} in|gave {him} a kiss].
""",
    "After that, whenever {he} heard something in the dark, {h} [took the light and looked|smiled and went to sleep]",
)

GIFT = (
    "gift",
    """
{Tomorrow} was the birthday of {f}, and {h} wanted to give {fhim} something [special|beautiful]. {He} [opened {his} money box|turned out {his} pockets], but there was only [one small coin|a button] in it. [With that {he} could buy nothing.|In the shop everything was too dear.] {h} was {sad}, because [{f} had given {him} a present too|{f} was {his} best friend].
"[A gift does not have to come from a shop|The best gifts are made by hand]," said {e}. {h} [looked around|thought about it]. In the [corner|shed], {he} found {material}. Then {he} had an idea. {He} [worked|sat] all [evening|night], and {he} [cut and bound|tried and tried again]. Once {he} made a mistake and had to begin again. But in the morning, it was finished: it was {gift}.
{h} [wrapped it in paper|put a ribbon around it] and took it to {f}. There were [many guests|many children], and they had brought [big boxes|expensive things]. {h} [almost wanted to hide {his}|was ashamed of {his} little parcel]. But when {f} opened it, {fhis} eyes [shone|grew big]. "[Did you make this yourself|You made this for me]?" {fhe} asked. "Yes," said {h}. {f} [hugged {him}|took {his} hand]. "[It is the best present of all|I will keep it for ever]," {fhe} said. And it {effect}.
""",
    "The other gifts were soon forgotten, but {f} [still has the one from {h}|kept this one all {fhis} life]",
)

REPAIR = (
    "mend",
    """
{t} [needed|had] an old {thing} to {use}. But {time2}, the {part} of the {thing} broke. "[What bad luck|Now it is of no use]," said {t}. "[Without it I cannot {use}|I shall have to buy a new one, and I have no money]." {h} [heard this|was standing near by] and [felt sorry for {thim}|wanted to help].
"[May I try to mend it|Let me look at it]," said {h}. "You?" {t} [laughed|said]. "You are [too small|still so young]." But {h} [did not go away|looked at the {part} from all sides]. "[I need|All I need is] {fix}," {he} said. {f} [knew where to find that|brought it], and they [began|got to work]. {f} held the {thing}, and {h} {fixing}. The first time it [came off again|did not hold], because they [were too quick|had hurried]. So they did it [once more|again], slowly and carefully.
"[Now try it|It is ready]," said {h}. {t} tried the {thing}, and it was [as good as new|better than before]. Now {the} could {use} again. "[I will never laugh at small people again|You are a true master]," said {t}, and {the} gave them [a basket of {goods2}|a big piece of cake].
""",
    "[From that day on|Ever since], when something broke in the village, people [said: let us ask {h}|went to {h} first]",
)

SKILL = (
    "learn",
    """
{h} wanted to learn to {skill}. All {his} friends could do it, only {he} could not. {time}, {he} [went out|tried it] {where}. {He} tried it [once|for the first time] and {failed}. {He} tried it again and {failed} again. [Some children laughed.|Somebody laughed.] {h} [turned red|went away with wet eyes]. "[I will never learn it|It is too hard for me]," {he} said.
{f} had seen [everything|it]. {Fhe} [did not laugh|sat down beside {him}]. "[I also {failed} when I began|Nobody can do it on the first day]," said {f}. "[Shall I tell you a secret|I will tell you how to do it]: {advice}." {h} [dried {his} tears|listened well]. The next morning, when nobody was there, they met {where} and {h} tried it [again|once more]. {f} was right. It was [a little better|already better], and the day after it was better still.
[After a week|After many days], {h} could {skill} [quite well|as well as the others]. {He} [loved|was so fond of] {doing_skill} that {he} [did it every day|forgot to come home for dinner]. Then {he} saw a little [girl|boy] who {failed} and [was about to cry|sat there all alone]. {h} went to the child and said: "[Shall I tell you a secret|I will tell you how to do it]: {advice}."
""",
    "[That is how it goes|So it goes on]: [who has learned something can teach it|one who was helped helps the next]",
)

COLD = (
    "cold",
    """
It was [winter|a hard winter], and the snow lay [deep|high] around the house. {h} had [a warm coat|a thick {col} scarf] that {e} had made. {time}, {he} met {f} [on the road|at the gate]. {f} was [shaking with cold|blue with cold], because {fhe} had [only a thin jacket|lost {fhis} coat in the river]. 
{h} [thought about it|looked at {his} warm things]. If {he} gave {his} coat away, {he} would be cold {himself}. But {he} could not [walk on|leave {f} there]. "[Come here|Come close]," said {h}. "[The coat is big enough for two|There is room for both of us]." So they both [got into the coat|put the coat around them], and [walked like one animal with four legs|went on together]. It was [funny|not easy], and they [fell into the snow|laughed all the way].
At home, {e} [saw them coming|opened the door]. "[What a strange beast is this|Who is coming there]?" {ehe} [asked|laughed]. Then {ehe} [saw|understood] why they were coming in one coat. {Ehe} [gave them hot tea|put them in front of the fire] and took out {ehis} [wool|needle]. {Ehe} worked [all night|until late], and in the morning there was a second coat for {f}. It was [just as warm|even warmer].
""",
    "Neither of them [was cold again|had to freeze] that winter",
)

TRUTH = (
    "truth",
    """
In the house of {e} stood a {size} [blue vase|glass bowl|white jug]. "[Please do not touch it|Be careful with it]," {ehe} always said, "[it is very old|it belonged to my mother]." {time}, {h} was alone at home. {He} [was playing with a ball|only wanted to look at it]. Then there was a crash, and it lay on the floor in [a hundred|a thousand] pieces.
{h} [turned pale|stood there and did not move]. "[What shall I do|Nobody saw it]," {he} thought. "I could [say that the cat did it|hide the pieces]." {He} [put the pieces in a box|swept up the pieces] and [hid it under {his} bed|pushed it behind the stove]. But all day {he} could [not eat|not play], because {he} [felt so bad|had to think of it]. {f} [saw that something was wrong|asked what was wrong], and {h} told {fhim} everything. "[Tell the truth|Say it as it was]," said {f}. "[A lie grows heavier every day|It will be easier afterwards]."
So, in the evening, {h} went to {e}. "I have broken it," {he} said, [and a tear ran down {his} face|very softly]. "[I am so sorry|I did not mean to]." {E} was [silent|quiet] for a while. "I am sad about it," {ehe} said then, "but I am glad that you told me the truth. [That was brave|That is worth more than glass]." Together they [glued|tried to glue] the pieces. There were [cracks|lines] everywhere, but [flowers still looked good in it|it held water again].
""",
    "{h} [felt as light as a bird|slept well that night], because {he} [had nothing to hide|had told the truth]",
)

GREEDY = (
    "greedy",
    """
{time}, {h} found a [bush|tree] full of [ripe berries|sweet plums|red cherries] {inplace}. {Sky}. "[All for me|I shall tell nobody]," {he} thought and began to eat. {He} ate with both hands. After a while {f} came along. "[May I have some?|They look good. Will you share them?|Give me a few, please.]" asked {f}. "[No|Go away]," said {h} with a full mouth. "[There are not enough|I found them first]." {f} [shook {fhis} head|was hurt|said nothing more] and went away.
{h} ate [and ate|more and more], until there were none left. Then {he} [lay down in the grass|wanted to go home]. But oh, how {his} belly hurt! {He} could not [walk|stand up]. "[Help|Oh, help me]!" {he} cried, but nobody was there, because {he} had [sent {f} away|driven {f} away]. [Nobody came for a long time.|It grew late and cold.]
At last {he} heard steps. It was {f}. "[I heard you from far away|I thought that you might need me]," said {f}. {Fhe} [helped {him} up|took {him} home] and [made {him} some tea|put a warm stone on {his} belly]. "[Why are you so good to me|Why do you help me]?" asked {h}. "I [would not give|gave] you [nothing|not even one]." "[Because you are my friend|A friend is a friend]," said {f}. {h} was [ashamed|very quiet].
The next [summer|year], when the fruit was ripe again, {h} [called {f} before {he} ate the first one|carried the first basket to {f}].
""",
    "And it was strange: [half as much tasted twice as good|nobody had a belly ache]",
)

NEWCOMER = (
    "new",
    """
{f} had [just come|moved] to the [village|place] and knew nobody. {Fhe} [sat alone|stood beside the fence] and watched the others play. {h} saw {fhim}, but [{he} was too shy to speak|{he} did not know what to say]. So nobody said anything, and {f} [went home again|stayed alone]. 
{time}, {h} was [playing|walking] {inplace}, and {sky}. {His} {toy} [rolled away|flew over the fence] and [landed|stopped] right in front of {f}. {f} [picked it up|looked at it]. "[Is this yours|Did you lose this]?" {fhe} asked. "Yes," said {h}, "[thank you|it is mine]. [What is your name|Who are you]?" "I am {f}," said {f}. "[We used to live|I come from a place] far away, where [there are no trees|it never snows|everyone lives on boats]." "[Tell me about it|I want to hear more]!" said {h}.
So they sat down, and {f} told {him} about [the great ships|the red mountains|the long winters] of {fhis} home. {h} showed {fhim} [the best places|all the secret paths], {inplace} and [behind the mill|by the stream]. When the others saw them [laughing|together], they came [too|closer]. "[Can we play with you|May we listen]?" they asked. Soon they were all playing [a game from far away|one game], which {f} had to explain, because nobody knew it.
""",
    'In the evening, {f} said at home: "[Today I found a friend|I like it here]"',
)

TRADE = (
    "swap",
    """
{time}, {h} went to the market with a {size} {keep}. {He} wanted to [swap|change] it for [a present for {e}|something to eat], because there was [no bread in the house|no money in the house]. First {he} met {t}. "[What a nice {keep}|I could use a {keep}]," said {t}. "[I will give you|Take] a bag of {goods2} for it." {h} agreed, and [they shook hands|{he} went on with the bag].
Then {he} met {f}, who was [crying|sitting on a stone]. "[I am so hungry|I have eaten nothing since yesterday]," said {f}. {h} looked at {his} bag. [It was all {he} had.|{He} needed it {himself}.] But {he} [opened it|gave {f} half of it]. "[Eat|Take this]," {he} said. {f} [ate|thanked {him}] and smiled again. "I have nothing but this {keep2}," said {f}. "[Take it|It is for you]. It [brings luck|belonged to my father]."
{h} [put it in {his} pocket|took it] and walked home. At the gate stood a [rich|tall] woman. "[Where did you get that {keep2}?|That {keep2}!|Oh, that {keep2}!]" she cried. "[I lost it years ago|It is just like the one I had as a child]. [I will give you whatever you want|What do you want for it]?" {h} [thought|did not think long]. "[Some bread for us, and a warm room for my friend|Enough to eat for us and for {f}]," {he} said. The woman [nodded|smiled] and gave {him} [all that and more|what {he} wanted].
""",
    "So [a {keep} became a feast|everyone had what they needed], because {h} had [not kept everything for {himself}|shared when {he} had little]",
)

BUILD = (
    "tower",
    """
{time}, {h} and {f} wanted to build a {hut} {inplace}. "[It must be ready by tonight|Let us be quick]," said {h}. "[It must be strong|Let us do it well]," said {f}. They could not agree, so each of them built a {hut} alone. {h} [took straw and thin sticks|leaned a few boards together] and was [ready by noon|soon ready]. {f} [carried stones|cut strong posts], one after the other, and [was not even half done|needed the whole day].
"[Mine is finished, and you are still working|How slow you are]!" laughed {h} and [lay down in the shade|went for a swim]. {f} only [smiled|nodded] and [worked on|put one stone on the other]. In the evening, {sky2}. At night, [the wind rose|a storm came]. It blew [harder and harder|so hard that the trees bent]. {h}'s {hut} [shook|creaked] and then it [fell down|flew away]. There {he} stood in the rain.
{He} ran to {f} and knocked. "[May I come in?|Please let me in!]" {he} called. "[Of course|Come in quickly]," said {f}, and {fhe} [made room by the fire|gave {him} a blanket]. {f}'s {hut} stood [firm|like a rock]. "[I was quick, but you were right|I laughed too soon]," said {h}. "[You were quick, and I was careful|Tomorrow we build together]," said {f}. "[That is a good pair|With both we can build anything]."
""",
    "The next day they built one big {hut}, and it [is still standing|has stood ever since]",
)
PLOTS = [COOKING, QUARREL, DARK, GIFT, REPAIR, SKILL, COLD, TRUTH, GREEDY, NEWCOMER, TRADE, BUILD]
